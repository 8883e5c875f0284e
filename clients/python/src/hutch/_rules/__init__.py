# SPDX-License-Identifier: Apache-2.0
"""The rules of the contract that are pure functions, checked by spec/vectors. Nothing here does any I/O."""
