# SPDX-License-Identifier: Apache-2.0
"""Moves a folder into a sandbox, works on it there, and gets it back."""

import io
import tarfile
import tempfile
from pathlib import Path

import hutch

with tempfile.TemporaryDirectory() as folder:
    Path(folder, "words.txt").write_text("pear\napple\nfig\n", encoding="utf-8")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(folder, arcname=".")

    with hutch.Client() as client, client.create() as box:
        box.files.upload_archive("work", packed.getvalue(), create_parents=True)
        box.run(["sort", "-o", "words.txt", "words.txt"], working_directory="work")
        with tarfile.open(fileobj=io.BytesIO(box.files.download_archive("work").read())) as archive:
            sorted_words = archive.extractfile("words.txt")
            assert sorted_words is not None
            print(sorted_words.read().decode().split())
