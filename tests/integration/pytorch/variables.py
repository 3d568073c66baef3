# SPDX-License-Identifier: Apache-2.0
"""Writes its environment to FOLDER/env.<rank>.json."""
import json
import os
import sys

with open(os.path.join(sys.argv[1], f"env.{os.environ['RANK']}.json"), "w",
          encoding="utf-8") as file:
    json.dump(dict(os.environ), file)
