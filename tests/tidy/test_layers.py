"""Imports point one way, from the command line down to the leaves, and the connector stands on public names.

docs/architecture.md draws the rooms; ``ROOM_IMPORTS`` is the same as a table.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.support.source_tree import Module, imported_names, modules

# What each room may import, itself apart. `leaves` are the modules directly in the package that any room may use.
LEAVES = frozenset(
    {"addresses", "batch_id", "config", "delay_level", "errors", "half_message", "java_numbers", "message"}
    | {"packed_json", "paths", "progress", "put_status", "sizes", "slow_steps", "storage_stats", "timestamps"}
    | {"unpicklable"}
)
_BYTES = frozenset({"leaves", "format", "columnar"})
_LOG = _BYTES | {"files", "log"}
_PARTS = _LOG | {"config_files", "queue", "index", "batch"}
_ENGINE = _PARTS | {"threads", "recovery", "engine"}
_SUBJECTS = frozenset({"delayed", "half", "groups", "retention", "replication"})
ROOM_IMPORTS: dict[str, frozenset[str]] = {
    "leaves": frozenset(),
    "threads": frozenset({"leaves"}),
    "format": frozenset({"leaves"}),
    "columnar": frozenset({"leaves", "format"}),
    "filter": frozenset({"leaves", "format", "columnar"}),
    "files": frozenset({"leaves"}),
    "decoders": frozenset({"leaves", "files"}),
    "config_files": frozenset({"leaves", "files"}),
    "log": _BYTES | {"files"},
    "queue": _LOG | {"config_files", "filter", "threads"},
    "index": _BYTES | {"files"},
    "batch": _LOG | {"queue"},
    "recovery": _PARTS | {"threads"},
    "engine": _PARTS | {"threads", "recovery"},
    "replication": _ENGINE,
    "groups": _ENGINE | {"replication"},
    "delayed": _ENGINE,
    "half": _ENGINE | {"groups"},
    "retention": _ENGINE | {"delayed", "groups"},
    "owned_store": _ENGINE | _SUBJECTS,
    "verify": _PARTS | {"recovery", "delayed", "groups", "retention"},
    "reading": _PARTS | {"filter", "recovery", "delayed", "groups"},
    "reader": _PARTS | {"filter", "half", "delayed", "groups", "reading", "verify"},
    "reader_pool": frozenset({"leaves", "reader"}),
    "producing": _ENGINE,
    "consuming": frozenset({"leaves"}),
    "remote": _ENGINE | _SUBJECTS | {"consuming", "filter", "producing", "reader", "reading", "verify"},
    "serve": _ENGINE
    | _SUBJECTS
    | {"consumers", "filter", "metadata", "owned_store", "queries", "reader", "reader_pool", "remote", "stager"}
    | {"store", "transaction", "verify", "export", "archive", "object_storage", "decoders"},
    "stager": _PARTS,
    "export": _PARTS | {"filter", "object_storage", "reader"},
    "metadata": _PARTS | {"reader", "verify"},
    "queries": _LOG | {"queue", "filter", "groups", "reader"},
    "salvage": _PARTS | {"recovery", "export", "groups", "verify"},
    "transaction": _PARTS | {"owned_store"},
    "follower": _ENGINE | {"delayed", "groups", "replication", "owned_store"},
    "object_storage": _BYTES | {"files"},
    "archive": _ENGINE | {"object_storage", "owned_store", "retention"},
    "archive_reader": _PARTS
    | {"archive", "delayed", "filter", "groups", "object_storage"}
    | {"reader", "reading", "threads", "verify"},
    "history": _PARTS
    | {"archive", "archive_reader", "delayed", "filter", "groups", "half", "reader", "reading", "verify"},
    "consumers": _ENGINE
    | {"consuming", "filter", "groups", "reader", "reader_pool", "reading", "owned_store", "transaction"},
    "store": _ENGINE | _SUBJECTS | {"consumers", "filter", "owned_store", "producing", "reader", "transaction"},
    "repair": _LOG | {"recovery", "store", "verify"},
    "testing": frozenset({"leaves", "recovery", "owned_store", "store", "serve"}),
    "pytest_plugin": frozenset({"testing"}),
    # The package's own __init__ gathers the public names.
    "public": _ENGINE
    | _SUBJECTS
    | {"filter", "verify", "reader", "stager", "store", "repair", "export", "salvage"}
    | {"archive", "object_storage"}
    | {"consumers", "metadata", "follower", "owned_store", "remote", "transaction"},
    "cli": _ENGINE
    | _SUBJECTS
    | {"filter", "verify", "reader", "store", "repair", "export", "salvage", "public", "metadata", "follower", "serve"}
    | {"archive", "decoders", "object_storage", "queries"},
    "__main__": frozenset({"cli", "public"}),
}

# Imports within a function, against the direction: what is imported does not import the module in return.
LATE_IMPORTS = {
    ("commitlog_store.config", "commitlog_store.files.disk"),
    ("commitlog_store.config", "commitlog_store.files.local_address"),
    ("commitlog_store.owned_store.opening", "commitlog_store.archive.holding.ArchiveHolder"),
    ("commitlog_store.retention.survey", "commitlog_store.archive.holding.archive_hold"),
}

# The modules of commitlog_store that the connector may import from.
PUBLIC_MODULES = (
    "commitlog_store", "commitlog_store.errors", "commitlog_store.packed_json", "commitlog_store.paths",
    "commitlog_store.sizes",
    "commitlog_store.history.planned", "commitlog_store.object_storage.reading",
    "commitlog_store.stager", "commitlog_store.timestamps", "commitlog_store.columnar.columns",
)  # fmt: skip

# Third-party packages, by room. The standard library may be used anywhere but where FORBIDDEN says otherwise.
THIRD_PARTY: dict[str, frozenset[str]] = dict.fromkeys(ROOM_IMPORTS, frozenset({"numpy", "pyarrow"})) | {
    "leaves": frozenset({"javaproperties", "msgspec", "numpy", "pyarrow"}),
    "format": frozenset({"msgspec", "numpy", "pyarrow", "zlib_ng"}),
    "threads": frozenset(),
    "decoders": frozenset({"fastavro", "google", "msgspec", "pyarrow"}),
    "files": frozenset({"inotify_simple", "numpy", "pyarrow"}),
    "config_files": frozenset({"msgspec"}),
    "delayed": frozenset({"msgspec", "numpy", "pyarrow"}),
    "groups": frozenset({"msgspec", "numpy", "pyarrow"}),
    "remote": frozenset({"msgspec", "numpy", "pyarrow"}),
    # The packages of the extra web stay within serve/http (test_imports_are_light.py).
    "serve": frozenset({"msgspec", "numpy", "orjson", "pyarrow"})
    | {"jinja2", "markupsafe", "prometheus_client", "starlette", "uvicorn"},
    "replication": frozenset({"msgspec", "numpy", "pyarrow"}),
    "follower": frozenset({"msgspec", "numpy", "pyarrow"}),
    "archive": frozenset({"msgspec", "numpy", "pyarrow"}),
    "object_storage": frozenset({"hdfs_native", "numpy", "obstore", "pyarrow"}),
    "queue": frozenset({"msgspec", "numpy", "pyarrow"}),
    "batch": frozenset({"msgspec", "numpy", "pyarrow"}),
    "recovery": frozenset({"msgspec", "numpy", "pyarrow"}),
    "engine": frozenset({"msgspec", "numpy", "pyarrow"}),
    "cli": frozenset({"msgspec", "numpy", "orjson", "pyarrow", "rich", "textual", "typer"}),
    "export": frozenset({"msgspec", "numpy", "orjson", "pyarrow"}),
    "filter": frozenset({"lark", "numpy", "pyarrow"}),
    "pytest_plugin": frozenset({"pytest"}),
}

# Codecs are pure: they reach neither files nor threads nor the clock.
FORBIDDEN_IN_CODECS = frozenset(
    {"mmap", "os", "pathlib", "shutil", "socket", "subprocess", "tempfile", "threading", "time"}
)

# Outside files/, nothing opens, asks for, lists or maps a file: not through os,
FILE_CALLS = frozenset(
    {"access", "chmod", "chown", "fdatasync", "fstat", "fsync", "ftruncate", "link", "listdir", "lstat", "makedirs"}
    | {"mkdir", "open", "pread", "preadv", "pwrite", "pwritev", "read", "readlink", "remove", "removedirs", "rename"}
    | {"renames", "replace", "rmdir", "scandir", "stat", "statvfs", "symlink", "truncate", "unlink", "utime", "walk"}
    | {"write"}
)
# nor through os.path beyond these, which only put texts together,
PATH_TEXT_CALLS = frozenset(
    {"abspath", "basename", "commonpath", "dirname", "isabs", "join", "normpath", "split", "splitext"}
)
# nor through a Path,
PATH_METHODS = frozenset(
    {"exists", "glob", "hardlink_to", "is_dir", "is_file", "is_symlink", "iterdir", "lstat", "read_bytes", "read_text"}
    | {"rglob", "samefile", "stat", "symlink_to", "touch", "unlink", "write_bytes", "write_text"}
)
# nor through a module that does it for them.
FILE_MODULES = frozenset({"fileinput", "glob", "mmap", "pathlib", "shutil", "tempfile"})


def room_of(name: str) -> str:
    """The room of a module, or of a name imported from one, such as ``commitlog_store.format.record.decode``."""
    parts = name.split(".")
    if len(parts) == 1:
        return "public"
    if parts[1] in LEAVES:
        return "leaves"
    return parts[1] if parts[1] in ROOM_IMPORTS else "public"


def test_every_module_of_the_store_is_in_a_room() -> None:
    for module in modules("commitlog_store"):
        parts = module.name.split(".")
        assert len(parts) == 1 or parts[1] in LEAVES | ROOM_IMPORTS.keys(), (
            f"{module.path}: no room is called {parts[1]!r}; give it one in {__name__} and in docs/architecture.md"
        )


def test_imports_within_the_store_point_one_way() -> None:
    wrong = [
        f"{module.path}:{line}: {room_of(module.name)} imports {name} ({room_of(name)})"
        for module in modules("commitlog_store")
        for name, line in imported_names(module)
        if name.split(".")[0] == "commitlog_store"
        and room_of(name) != room_of(module.name)
        and room_of(name) not in ROOM_IMPORTS[room_of(module.name)]
        and (module.name, name) not in LATE_IMPORTS
    ]
    assert not wrong, "\n".join(wrong)


def test_no_two_rooms_import_each_other() -> None:
    """The table itself has no circle: a room is placed once everything that it may import is."""
    placed: set[str] = set()
    while len(placed) < len(ROOM_IMPORTS):
        following = {room for room, imports in ROOM_IMPORTS.items() if imports <= placed} - placed
        assert following, f"these rooms import each other in a circle: {sorted(ROOM_IMPORTS.keys() - placed)}"
        placed |= following


def test_no_two_modules_import_each_other() -> None:
    """No circle of files, at the first import or later, within a room or across rooms, in store and connector."""
    found = circles(modules("commitlog_store") + modules("pyspark_commitlog"))
    assert not found, "\n".join(" and ".join(circle) for circle in found)


def circles(tree: Iterable[Module]) -> list[tuple[str, ...]]:
    """The groups of modules that import each other, directly or through others; types count, too."""
    by_name = {module.name: module for module in tree}
    imports: dict[str, set[str]] = {}
    for name, module in by_name.items():
        used = {one if one in by_name else one.rpartition(".")[0] for one, _ in imported_names(module)}
        imports[name] = used & by_name.keys() - {name}
    reached: dict[str, set[str]] = {}
    for name in imports:
        reached[name], following = set(), [name]
        while following:
            new = imports[following.pop()] - reached[name]
            reached[name] |= new
            following += new
    groups = {tuple(sorted(one for one in seen if name in reached[one])) for name, seen in reached.items()}
    return sorted(groups - {()})


@pytest.mark.parametrize(
    ("sources", "found"),
    [
        ({"a": "import b", "b": "import c", "c": ""}, []),
        ({"a": "import b", "b": "import a"}, [("a", "b")]),
        ({"a": "from b import x", "b": "def f():\n    from a import y"}, [("a", "b")]),
        (
            {"a": "import b", "b": "import c", "c": "if TYPE_CHECKING:\n    import a", "d": "import a"},
            [("a", "b", "c")],
        ),
        ({"r": "", "r.a": "from r import b", "r.b": "from r.a import x"}, [("r.a", "r.b")]),
    ],
)
def test_the_finder_of_circles_sees_each_kind(sources: dict[str, str], found: list[tuple[str, ...]]) -> None:
    tree = [Module(name=name, path=Path(f"{name}.py"), tree=ast.parse(text)) for name, text in sources.items()]
    assert circles(tree) == found


def test_the_store_imports_only_the_packages_that_its_rooms_allow() -> None:
    wrong = [
        f"{module.path}:{line}: {room_of(module.name)} imports {name}"
        for module in modules("commitlog_store")
        for name, line in imported_names(module)
        if (top := name.split(".")[0]) not in sys.stdlib_module_names
        and top != "commitlog_store"
        and top not in THIRD_PARTY[room_of(module.name)]
    ]
    assert not wrong, "\n".join(wrong)


def test_the_connector_imports_only_public_names_of_the_store() -> None:
    wrong = [
        f"{module.path}:{line}: imports {name}"
        for module in modules("pyspark_commitlog")
        for name, line in imported_names(module)
        if name.split(".")[0] == "commitlog_store"
        and not (name in PUBLIC_MODULES or name.rpartition(".")[0] in PUBLIC_MODULES)
    ]
    assert not wrong, "\n".join(wrong)


def test_a_public_module_is_not_a_way_around() -> None:
    """``from commitlog_store import log`` ends in a public module's name, and would still reach a private room."""
    private = ROOM_IMPORTS.keys() - {"leaves", "public"}
    wrong = [
        f"{module.path}:{line}: imports {name}"
        for module in modules("pyspark_commitlog")
        for name, line in imported_names(module)
        if name.startswith("commitlog_store.") and name.count(".") == 1 and name.split(".")[1] in private
    ]
    assert not wrong, "\n".join(wrong)


def test_formats_are_pure() -> None:
    wrong = [
        f"{module.path}:{line}: imports {name}"
        for module in modules("commitlog_store")
        if room_of(module.name) in {"format", "columnar", "filter", "leaves"}
        for name, line in imported_names(module, with_type_checking=False)
        if name.split(".")[0] in FORBIDDEN_IN_CODECS
    ]
    assert not wrong, "\n".join(wrong)


def test_only_files_touches_files() -> None:
    wrong = [
        f"{module.path}:{line}: {what}"
        for module in modules("commitlog_store")
        if room_of(module.name) != "files"
        for line, what in _file_access(module)
    ]
    assert not wrong, "\n".join(wrong)


def _file_access(module: Module) -> list[tuple[int, str]]:
    """Imports and calls that reach the disk."""
    found = [
        (line, f"imports {name}")
        for name, line in imported_names(module)
        if name.split(".")[0] in FILE_MODULES or _reaches_the_disk(name)
    ]
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            base, _, method = called.rpartition(".")
            reaches = called == "open" or _reaches_the_disk(called)
            reaches |= method in PATH_METHODS and base not in ("os", "disk")
            # /dev/null is not a file of a store.
            if reaches and not (node.args and ast.unparse(node.args[0]) == "os.devnull"):
                found.append((node.lineno, f"calls {called}()"))
    return found


def _reaches_the_disk(name: str) -> bool:
    """Whether a dotted name is a function of os, io or os.path that reaches the disk."""
    base, _, function = name.rpartition(".")
    return (
        (base == "os" and function in FILE_CALLS)
        or (base == "os.path" and function not in PATH_TEXT_CALLS)
        or (base == "io" and function in {"FileIO", "open", "open_code"})
    )


@pytest.mark.parametrize(
    "source",
    [
        "open('x')",
        "os.open(path, flags)",
        "os.walk(path)",
        "os.lstat(path)",
        "os.path.exists(path)",
        "os.path.isdir(os.path.join(a, b))",
        "os.path.isfile(path)",
        "os.path.getsize(path)",
        "io.open(path)",
        "path.read_bytes()",
        "(directory / name).iterdir()",
        "self.path.exists()",
        "import mmap",
        "from mmap import mmap",
        "from pathlib import Path",
        "import shutil",
        "from os import stat",
        "from os.path import exists",
    ],
)
def test_the_file_access_finder_sees_every_way_to_the_disk(source: str) -> None:
    assert _file_access(Module(name="commitlog_store.log.here", path=Path("here.py"), tree=ast.parse(source)))


@pytest.mark.parametrize(
    "source",
    [
        "os.path.join(a, b)",
        "os.path.basename(path)",
        "disk.exists(path)",
        "disk.read_file(path, 10)",
        "MappedFile.open(path, 0)",
        "StoreReader.open(path)",
        "os.open(os.devnull, os.O_WRONLY)",
        "text.replace('a', 'b')",
        "import os",
        "from os import PathLike",
        "listing.exists",
    ],
)
def test_the_file_access_finder_leaves_the_rest_alone(source: str) -> None:
    assert not _file_access(Module(name="commitlog_store.log.here", path=Path("here.py"), tree=ast.parse(source)))


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import a.b", ["a.b"]),
        ("from a.b import c, d", ["a.b.c", "a.b.d"]),
        ("def f():\n    from a import b", ["a.b"]),
        ("from . import x", ["commitlog_store.log.x"]),
        ("from ..format import x", ["commitlog_store.format.x"]),
        ("if TYPE_CHECKING:\n    import os", []),
    ],
)
def test_the_import_finder_sees_every_kind_of_import(source: str, names: list[str]) -> None:
    module = Module(name="commitlog_store.log.here", path=Path("here.py"), tree=ast.parse(source))
    assert [name for name, _ in imported_names(module, with_type_checking=False)] == names
