# SPDX-License-Identifier: Apache-2.0
"""The rooms only look down, and every header stands alone."""

import subprocess

import pytest
from includes import MAY_INCLUDE, violations
from tree import ROOT, handwritten, name


def tree_of(tmp_path, **sources):
    """Writes a small source folder: room__file_c="…" is room/file.c."""
    for key, text in sources.items():
        file = tmp_path / key.replace("__", "/").replace("_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return tmp_path


def test_includes_of_this_tree_are_allowed():
    found = violations(ROOT / "src")
    assert not found, "\n".join(found)


def test_a_room_includes_itself_base_and_what_stands_below_it(tmp_path):
    tree_of(
        tmp_path,
        base__error_h="#pragma once\n",
        model__id_h='#pragma once\n#include "base/error.h"\n',
        policy__path_h='#pragma once\n#include "model/id.h"\n',
        policy__path_c='#include "policy/path.h"\n#include "base/error.h"\n#include <errno.h>\n',
        runtime__runtime_h="#pragma once\n",
        control__loop_c='#include "runtime/runtime.h"\n',
        rpc__health_c='#include "contract/grpc/health/v1/health.pb-c.h"\n#include "rpc/core/call.h"\n',
        rpc__core__call_h="#pragma once\n",
        api__errors_c='#include "contract/hutch/v1/errors.pb-c.h"\n',
    )
    assert violations(tmp_path) == []


@pytest.mark.parametrize("room", MAY_INCLUDE)
def test_nobody_includes_daemon(tmp_path, room):
    if room not in {"daemon", "contract"}:
        tree_of(tmp_path, **{f"{room}__x_c": '#include "daemon/config.h"\n'})
        assert violations(tmp_path) == [f'{room}/x.c: {room} may not include "daemon/config.h"']


@pytest.mark.parametrize(
    "source, text, problem",
    [
        ("base__x_c", '#include "model/id.h"', 'base may not include "model/id.h"'),
        ("model__x_h", '#pragma once\n#include "policy/x.h"', 'model may not include "policy/x.h"'),
        ("policy__x_c", '  #  include "rpc/frame.h"', 'policy may not include "rpc/frame.h"'),
        ("control__x_c", '#include "runtime/native.h"', 'control may not include "runtime/native.h"'),
        ("rpc__x_c", '#include "contract/hutch/x.h"', 'rpc may not include "contract/hutch/x.h"'),
        ("control__x_c", '#include "contract/x.pb-c.h"', 'control may not include "contract/x.pb-c.h"'),
        ("cli__x_c", '#include "contract/x.pb-c.h"', 'cli may not include "contract/x.pb-c.h"'),
        ("keeper__worker__x_c", '#include "keeper/files/x.h"', 'keeper/worker may not include "keeper/files/x.h"'),
        ("rpc__core__x_c", '#include "rpc/server.h"', 'rpc/core may not include "rpc/server.h"'),
        ("base__x_c", '#include "error.h"', '"error.h" does not name its room'),
        ("base__x_c", '#include "../model/id.h"', '"../model/id.h" does not name its room'),
        ("base__x_c", '#include "attic/id.h"', '"attic/id.h" is in no room'),
        ("attic__x_c", "", "'attic' is no room"),
        ("base__x_h", "#include <stddef.h>", "has no #pragma once"),
    ],
)
def test_what_breaks_the_order_is_reported(tmp_path, source, text, problem):
    tree_of(tmp_path, **{source: text + "\n"})
    assert violations(tmp_path) == [f"{source.replace('__', '/').replace('_', '.')}: {problem}"]


def test_angle_brackets_hide_nothing(tmp_path):
    tree_of(tmp_path, base__x_c="#include <model/id.h>\n", model__id_h="#pragma once\n")
    assert violations(tmp_path) == ['base/x.c: base may not include "model/id.h"']


def test_headers_that_include_each_other_are_reported_once(tmp_path):
    tree_of(
        tmp_path,
        base__a_h='#pragma once\n#include "base/b.h"\n',
        base__b_h='#pragma once\n#include "base/c.h"\n',
        base__c_h='#pragma once\n#include "base/b.h"\n',
    )
    assert violations(tmp_path) == ["headers include each other: base/b.h -> base/c.h -> base/b.h"]


@pytest.mark.parametrize("header", handwritten(".h", under="src") + handwritten(".h", under="include"), ids=name)
def test_header_compiles_alone(header):
    flags = "-std=gnu17 -D_GNU_SOURCE -Wall -Wextra -Werror -fsyntax-only -Isrc -Isrc/contract -Iinclude -x c -"
    command = ["gcc", *flags.split()]
    source = f'#include "{header.relative_to(ROOT / name(header).split("/")[0])}"\n'
    compiled = subprocess.run(command, cwd=ROOT, input=source, capture_output=True, text=True, check=False)
    assert compiled.returncode == 0, compiled.stderr
