# SPDX-License-Identifier: Apache-2.0
"""What is installed beside the programs: the AppArmor profile, where an AppArmor is that can read it."""

import os
import re
import shutil
import subprocess

import pytest
from tree import ROOT

SCRIPT = ROOT / "packaging/install-apparmor"


@pytest.fixture(name="profile")
def fill_in(tmp_path):
    text = (ROOT / "packaging/apparmor.in").read_text(encoding="utf-8")
    filled = text.replace("@bindir@", "/usr/local/bin").replace("@libexecdir@", "/usr/local/libexec")
    assert not re.search(r"@\w+@", filled)
    path = tmp_path / "profile"
    path.write_text(filled, encoding="utf-8")
    return path


def install(mode: str, profile, folder, destination="") -> None:
    env = {**os.environ, "DESTDIR": str(destination)}
    subprocess.run([SCRIPT, mode, profile, folder], env=env, check=True, capture_output=True)


def test_it_is_installed_where_its_kind_of_apparmor_is(tmp_path, profile):
    folder, root = tmp_path / "apparmor.d", tmp_path / "root"
    install("auto", profile, folder, root)
    (folder / "abi").mkdir(parents=True)
    (folder / "abi/3.0").touch()
    install("auto", profile, folder, root)
    assert not root.exists()
    (folder / "abi/4.0").touch()
    install("disabled", profile, folder, root)
    assert not root.exists()
    install("auto", profile, folder, root)
    installed = root / folder.relative_to("/") / "hutch"
    assert installed.read_bytes() == profile.read_bytes()
    assert installed.stat().st_mode & 0o777 == 0o644
    assert not (folder / "hutch").exists()


def test_packagers_can_ask_for_it(tmp_path, profile):
    install("enabled", profile, tmp_path / "apparmor.d", tmp_path / "root")
    assert (tmp_path / "root" / (tmp_path / "apparmor.d/hutch").relative_to("/")).exists()


def test_it_lets_all_programs_have_user_namespaces(profile):
    text = re.sub(r"#.*", "", profile.read_text(encoding="utf-8"))
    profiles = dict(re.findall(r"^profile \S+ (\S+) flags=\(unconfined\) \{([^}]*)\}", text, re.MULTILINE))
    assert set(profiles) == {"/usr/local/bin/{hutch,hutchd}", "/usr/local/libexec/hutch/hutch-keeper"}
    assert all("userns," in rules for rules in profiles.values())


def test_apparmor_can_read_it(profile):
    if not shutil.which("apparmor_parser") or not os.path.exists("/etc/apparmor.d/abi/4.0"):
        pytest.skip("there is no AppArmor 4 on this machine")
    subprocess.run(["apparmor_parser", "-Q", "-K", profile], check=True)
