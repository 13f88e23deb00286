# ruff: noqa: F403
"""Every operation and what it answers, from one place: most tests name those of several modules."""

from engine.ops.admin import *
from engine.ops.base import *
from engine.ops.channels import Publish as Publish
from engine.ops.claims import *
from engine.ops.jobs import *
from engine.ops.looks import *
from engine.ops.schedules import *
from engine.ops.workers import *
