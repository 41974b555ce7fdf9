"""An all-reduce process in a pod: asked by who has the token, stopped by SIGTERM, heard at its end, refused in a line."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from certificates import certificate_files
from forks import Forks
from reserved_port import ReservedPort

from elastic_runtime.checkpoint.rank_files import FOLDER_VARIABLE, RankFiles, RankProgress
from elastic_runtime.control.client import ControlClient
from elastic_runtime.control.credentials import ClientCredentials
from elastic_runtime.control.messages import Size
from elastic_runtime.errors import BadInput, CoordinatorUnproven
from elastic_runtime.protocol.plan import Phase
from elastic_runtime.worker.ranks.rank_pod import BIND_VARIABLE, END_FILE_VARIABLE, RankPlace, RankPod
