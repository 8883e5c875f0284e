# SPDX-License-Identifier: Apache-2.0
"""Every client library goes through the same cases, and answers the same."""

import json

from drivers import DRIVERS


def test_case(results, case, language):
    """As the case expects, and, byte for byte, as the first language that the case is for."""
    transcript = results.of(case, language)
    others = [other for other in DRIVERS if (f"{case['area']}/{case['name']}", other) in results.futures]
    if others[0] != language:
        assert written(transcript) == written(results.of(case, others[0])), f"{language} is not as {others[0]}"


def written(transcript: list) -> list[str]:
    return [json.dumps(line, sort_keys=True) for line in transcript]
