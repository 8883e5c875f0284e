# SPDX-License-Identifier: Apache-2.0
"""Watches what happens to sandboxes, from the moment one is asked for until it is gone."""

import hutch
from hutch.v1 import state_pb2

with hutch.Client() as client, client.watch(selector="example=events") as watch:
    with client.create(hutch.SandboxSpec(labels={"example": "events"})):
        pass
    for event in watch:
        if event.HasField("sandbox_state"):
            state = state_pb2.SandboxState.Name(event.sandbox_state.to_state)
            print(event.sequence, state.removeprefix("SANDBOX_STATE_"))
            if state == "SANDBOX_STATE_DELETED":
                break
