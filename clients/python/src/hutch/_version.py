# SPDX-License-Identifier: Apache-2.0
"""The version of this library."""

VERSION = "0.1.0"
