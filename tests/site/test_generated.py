"""The pages made from the code have each public name once, and each command, option and code."""

from __future__ import annotations

import re

import commitlog_store
from commitlog_store.cli.exit_codes import EXIT_CODES
from commitlog_store.serve.rocketmq.codes import RequestCode, ResponseCode
from docs.site.__main__ import pages_from_the_code
from docs.site.generated import api_pages, public_names
from tests.store.cli.test_one_name import commands
from tests.support.local_spark import PROJECT

PAGES = pages_from_the_code()


def test_the_api_has_each_public_name_once() -> None:
    text = "".join(api_pages().values())
    found = re.findall(r"^\.\. (?:autoclass|autofunction|py:data):: commitlog_store\.(\w+)$", text, re.MULTILINE)
    public: list[str] = vars(commitlog_store)["__all__"]
    assert sorted(found) == sorted({*public, *public_names()} - {"__version__", "errors"})


def test_the_pages_of_the_api_are_in_its_index() -> None:
    pages = api_pages()
    listed = re.findall(r"^   ([a-z-]+)$", pages["api/index.rst"], re.MULTILINE)
    assert {f"api/{name}.rst" for name in listed} | {"api/index.rst"} == pages.keys()


def test_the_page_of_commands_has_every_command_option_and_exit_code() -> None:
    text = PAGES["commands.md"]
    sections = dict(re.findall(r"^### (.+?)\n(.*?)(?=^##)", text, re.MULTILINE | re.DOTALL))
    assert sections.keys() == {name for name, _ in commands()}
    for name, command in commands():
        for param in command.params:
            if param.name != "help" and not getattr(param, "hidden", False):
                for one in param.opts:
                    shown = one if one.startswith("-") else param.metavar
                    assert shown in sections[name], f"{name} lacks {one}"
    assert all(f"| {code} | {meaning}" in text for code, meaning in EXIT_CODES.items())


def test_every_code_is_on_its_page_and_each_request_among_those_that_are_explained() -> None:
    explained = (PROJECT / "docs" / "rocketmq-clients.md").read_text(encoding="utf-8")
    for code in (*RequestCode, *ResponseCode):
        assert f"| {code.value} | {code.name} |" in PAGES["codes.md"]
    rows = "".join(re.findall(r"^\| [\d,; a-z]+ \|.*$", explained, re.MULTILINE))
    known = {RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER}  # sent to name servers, see --namesrv
    assert [code for code in RequestCode if code not in known and not re.search(rf"\b{code.value}\b", rows)] == []
