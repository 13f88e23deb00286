"""The checks, one file each. Each is a pure function from the frames of a run to violation rows."""

from __future__ import annotations

from reports.checks import (
    h0_history_whole,
    h1_faults_bit,
    h2_coverage,
    h3_recorder_sound,
    j1_no_overlap,
    j2_fence_rises,
    j3_no_stale_finish,
    j4_conservation,
    j5_no_ghosts,
    j6_exactly_once,
    j8_not_early,
    j12_limits_hold,
    j13_liveness,
    j14_unique_kept,
    j15_ticks_once,
    j16_payload_kept,
    j17_needs_met,
    j18_routed_right,
    j19_delayed_on_time,
    p1_all_delivered,
    p2_only_published,
    p3_no_gaps,
    p4_one_clock_one_message,
    p5_ack_is_final,
    p6_receipts_safe,
    p7_one_order,
)
from reports.checks.base import Check

CHECKS: tuple[Check, ...] = tuple(
    module.CHECK
    for module in (
        h0_history_whole,
        h1_faults_bit,
        h2_coverage,
        h3_recorder_sound,
        j1_no_overlap,
        j2_fence_rises,
        j3_no_stale_finish,
        j4_conservation,
        j5_no_ghosts,
        j6_exactly_once,
        j8_not_early,
        j12_limits_hold,
        j13_liveness,
        j14_unique_kept,
        j15_ticks_once,
        j16_payload_kept,
        j17_needs_met,
        j18_routed_right,
        j19_delayed_on_time,
        p1_all_delivered,
        p2_only_published,
        p3_no_gaps,
        p4_one_clock_one_message,
        p5_ack_is_final,
        p6_receipts_safe,
        p7_one_order,
    )
)
