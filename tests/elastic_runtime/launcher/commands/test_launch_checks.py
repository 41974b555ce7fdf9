"""What is looked at before anything is started or written: TLS files, places of checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest
from certificates import certificate_files

from elastic_runtime.errors import BadInput
from elastic_runtime.launcher.commands.launch_checks import (
    check_checkpoints,
    check_joins,
    check_script,
    check_secrecy,
    check_tls,
    own_words,
)


def files(folder: Path) -> dict[str, Path]:
    """Three pairs: a good one, one of another host, one that has ended."""
    made = {}
    for name, host, days in (("", "127.0.0.1", 1), ("other-", "127.0.0.9", 1), ("old-", "127.0.0.1", -1)):
        _, certificate, key = certificate_files(folder, name, host, days)
        made |= {f"{name}certificate": Path(certificate), f"{name}key": Path(key)}
    certificate_files(folder, "locked-", password=b"secret")
    return made | {"locked-certificate": folder / "locked-cert.pem", "locked-key": folder / "locked-key.pem"}


def test_a_certificate_that_members_take_is_taken(tmp_path: Path) -> None:
    found = files(tmp_path)
    check_tls(found["certificate"], found["key"], found["certificate"], "127.0.0.1")


@pytest.mark.parametrize(
    ("certificate", "key", "ca", "says"),
    [
        ("certificate", "other-key", "certificate", "are no certificate and its key"),
        ("locked-certificate", "locked-key", "locked-certificate", "it has a password"),
        ("certificate", "key", "other-certificate", "self-signed certificate"),
        ("other-certificate", "other-key", "other-certificate", "certificate is not valid for '127.0.0.1'"),
        ("old-certificate", "old-key", "old-certificate", "certificate has expired"),
        ("certificate", "key", "key", "holds no certificates"),
    ],
)
def test_what_members_would_refuse_for_ever_is_refused_at_once(
    tmp_path: Path, certificate: str, key: str, ca: str, says: str
) -> None:
    found = files(tmp_path)
    with pytest.raises(BadInput, match=says) as caught:
        check_tls(found[certificate], found[key], found[ca], "127.0.0.1")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("url", ["s3://bucket/x", "file:///x"])
def test_a_url_is_no_folder_to_elastic_run(url: str) -> None:
    with pytest.raises(BadInput, match="elastic-run writes to folders, and to no URL"):
        check_checkpoints(Path(url), restore=False)


def test_checkpoints_go_where_there_are_none_and_come_from_where_there_are_some(tmp_path: Path) -> None:
    check_checkpoints(tmp_path / "a" / "b", restore=False)
    assert not (tmp_path / "a").exists()
    with pytest.raises(BadInput, match="there is no complete checkpoint"):
        check_checkpoints(tmp_path / "a", restore=True)
    (tmp_path / "step-0000000007").mkdir()
    check_checkpoints(tmp_path, restore=False)
    (tmp_path / "step-0000000007" / "manifest.json").touch()
    check_checkpoints(tmp_path, restore=True)
    with pytest.raises(BadInput, match="up to step 7; give --restore to begin from the newest"):
        check_checkpoints(tmp_path, restore=False)
    with pytest.raises(BadInput, match="is no folder"):
        check_checkpoints(tmp_path / "step-0000000007" / "manifest.json", restore=True)


@pytest.mark.parametrize(
    ("bind", "has_tls", "insecure", "taken"),
    [
        ("127.0.0.1", False, False, True),
        ("::1", False, False, True),
        ("localhost", False, False, True),
        ("192.0.2.7", False, False, False),
        ("2001:db8::7", False, False, False),
        ("node-7.example", False, False, False),
        ("192.0.2.7", True, False, True),
        ("192.0.2.7", False, True, True),
    ],
)
def test_an_address_that_others_reach_wants_tls_or_a_word(
    bind: str, has_tls: bool, insecure: bool, taken: bool
) -> None:
    if taken:
        check_secrecy(bind, has_tls, insecure)
    else:
        with pytest.raises(BadInput, match=r"give --certificate, --key and --ca, or, .* --allow-insecure"):
            check_secrecy(bind, has_tls, insecure)


@pytest.mark.parametrize(
    "files",
    [
        {"train.py": "import elastic_runtime as elastic"},
        {"train.py": "def main():\n    from elastic_runtime import join"},
        {"train.py": "from trainer import train", "trainer.py": "import elastic_runtime"},
        {
            "train.py": "from mine.training import loop",
            "mine/__init__.py": "",
            "mine/training/__init__.py": "from .loop import run",
            "mine/training/loop.py": "from ..base import job",
            "mine/base.py": "import elastic_runtime",
        },
        {"train.py": "import a", "a.py": "import b", "b.py": "import a\nimport elastic_runtime"},
    ],
)
def test_a_script_that_joins_or_imports_a_module_of_its_own_that_does_is_taken(
    tmp_path: Path, files: dict[str, str]
) -> None:
    for name, source in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(source)
    check_joins(tmp_path / "train.py")


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import torch", "does not import elastic_runtime, so that each worker would train all of it"),
        ("import broken", "or give --joins-elsewhere"),
        ("import torch.distributed as dist\ndist.init_process_group('gloo')", "elastic-run is no torchrun"),
        ("from torch.nn.parallel import DistributedDataParallel\nDistributedDataParallel(0)", "init_process_group"),
    ],
)
def test_a_script_that_never_joins_is_refused_with_what_to_do(tmp_path: Path, source: str, says: str) -> None:
    (tmp_path / "train.py").write_text(source)
    (tmp_path / "broken.py").write_text("import elastic_runtime (")
    (tmp_path / "elastic.py").write_text("import elastic_runtime")  # nobody imports it
    with pytest.raises(BadInput, match=says):
        check_joins(tmp_path / "train.py")


@pytest.mark.parametrize("word", ["python", "python3.12", "torchrun", "accelerate"])
def test_a_program_that_starts_scripts_is_named_in_vain(word: str) -> None:
    with pytest.raises(BadInput, match="give the script itself"):
        check_script(Path(word))


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        (["--ps", "1", "--lr", "3"], ["--ps"]),
        (["--lr=3", "--workers=2", "--ps", "1", "--ps", "2"], ["--workers", "--ps"]),
        (["--name", "x", "ps", "-o"], []),  # the script takes a --name itself
        (["--", "--ps", "1"], []),
        (["--ps1", "x=--ps"], []),
    ],
)
def test_our_options_behind_the_script_are_found_unless_it_takes_them_itself(
    tmp_path: Path, typed: list[str], found: list[str]
) -> None:
    script = tmp_path / "train.py"
    script.write_text("parser.add_argument('--name')\nparser.add_argument('--ps-extra')\n")
    assert own_words(script, typed, ["--ps", "--workers", "--name", "--output", "-o"]) == found
