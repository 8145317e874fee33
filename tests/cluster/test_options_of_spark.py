"""docs/cluster.md names options that the installed Spark has."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pyspark

from tests.support.local_spark import PROJECT

PAGE = PROJECT / "docs" / "cluster.md"
JARS = Path(pyspark.__file__).parent / "jars"
# Options whose names go on with what the user chooses.
OPEN = ("spark.yarn.appMasterEnv.", "spark.kubernetes.driver.secrets.")


def test_options_of_spark_exist() -> None:
    page = PAGE.read_text(encoding="utf-8")
    named = set(re.findall(r"(?:--conf |`)(spark\.[a-z][A-Za-z.]+)", page))
    wanted = {next((one for one in OPEN if name.startswith(one)), name) for name in named}
    assert {"spark.driver.port", *OPEN} <= wanted
    for jar in ("spark-core", "spark-yarn", "spark-kubernetes"):
        (path,) = JARS.glob(f"{jar}_*.jar")
        with zipfile.ZipFile(path) as classes:
            for name in classes.namelist():
                content = classes.read(name) if wanted and name.endswith(".class") else b""
                wanted -= {one for one in wanted if one.encode() in content}
    assert not wanted


def test_options_of_spark_submit_exist() -> None:
    page = PAGE.read_text(encoding="utf-8")
    submitted = "".join(re.findall(r"\$ spark-submit (?:.*\\\n)*.*\n", page))
    named = set(re.findall(r"--[a-z-]+", submitted))
    assert {"--archives", "--master"} <= named
    (path,) = JARS.glob("spark-launcher_*.jar")
    with zipfile.ZipFile(path) as classes:
        known = classes.read("org/apache/spark/launcher/SparkSubmitOptionParser.class")
    assert not {name for name in named if name.encode() not in known}
