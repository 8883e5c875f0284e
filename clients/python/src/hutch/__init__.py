# SPDX-License-Identifier: Apache-2.0
"""The Python client of Hutch."""
