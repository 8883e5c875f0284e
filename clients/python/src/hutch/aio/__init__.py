# SPDX-License-Identifier: Apache-2.0
"""The async client of Hutch. `hutch` itself has the same names for programs without an event loop."""

from hutch._results import ExecResult, SandboxSpec
from hutch.aio._agent import SandboxClient, SandboxHandle
from hutch.aio._client import Client
from hutch.aio._execs import Exec, ExecOutput, ExecStream, OneShot, Output
from hutch.aio._files import Download, Files, FileWatch
from hutch.aio._sandbox import Sandbox
from hutch.aio._watch import Watch

__all__ = [
    "Client",
    "Download",
    "Exec",
    "ExecOutput",
    "ExecResult",
    "ExecStream",
    "FileWatch",
    "Files",
    "OneShot",
    "Output",
    "Sandbox",
    "SandboxClient",
    "SandboxHandle",
    "SandboxSpec",
    "Watch",
]
