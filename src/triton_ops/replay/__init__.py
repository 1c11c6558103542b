"""Searches on recorded spaces: a recording has the times of all configs, so a search can be judged without a GPU."""

from triton_ops.replay.recording import Recording as Recording
from triton_ops.replay.recording import read_recording as read_recording
from triton_ops.replay.single_replay import ReplayRun as ReplayRun
from triton_ops.replay.single_replay import replay as replay
from triton_ops.replay.summary import SpaceSummary as SpaceSummary
from triton_ops.replay.summary import summarise as summarise
