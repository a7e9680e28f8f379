"""One item's measuring: what the fixtures ``transferbench`` and ``transfer_buffers`` are."""

from __future__ import annotations

import dataclasses
import math
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from pytest_transferbench.cases import Request, case_of, link_class_of, missing, places_of, read_transfer
from pytest_transferbench.measurement import Fault, Measurement
from pytest_transferbench.session import run as session_run
from pytest_transferbench.session.best import measure_best
from pytest_transferbench.session.run import Run
from pytest_transferbench.transfer import AnyCase, AnyTransfer, Case, MessageCase

if TYPE_CHECKING:
    from pytest_transferbench.engine import Lease
    from pytest_transferbench.judge import Limits
    from pytest_transferbench.runtime import RuntimeFault


@dataclass(frozen=True)
class ItemLimits:
    """The limits that applied to an item's last measurement.

    ``warm_cold`` is the warm over cold ratio above which it is CONTAMINATED, infinite where the ratio is only shown.
    """

    warm_cold: float = math.inf


class ItemBench:
    """What the ``transferbench`` fixture is: call it with a Transfer or a Test to measure and judge it.

    ``measurements`` are those that no report has taken yet, the judged one included; ``case`` is what this item was
    made for.
    """

    def __init__(self, run: Run, suite: str, case: AnyCase | None, request: Request) -> None:
        self._run = run
        self._suite = suite
        self.case = case
        self._request = request
        self._lease: tuple[Case, Lease] | None = None
        self._judged = False
        self.measurements: list[Measurement] = []
        self.limits = ItemLimits()

    def __repr__(self) -> str:
        return f"<transferbench of {self.case.name}>" if self.case else "<transferbench>"

    def __call__(
        self,
        transfer: AnyTransfer | str,
        data: Any = None,
        judge: bool = True,
        floor_gbps: float | None = None,
        floor_source: str = "",
    ) -> Measurement:
        """Measure ``transfer``, check its data and judge the figures.

        ``transfer`` is a Transfer, a Test, or the notation of one, or a Message. ``data`` is an array of the user's own
        to be moved in the place of the filled one. ``floor_gbps`` is in GB/s and replaces the mark's; ``floor_source``
        says in words where it comes from. With
        ``judge=False``, and always for a control, nothing is raised for the figures: they are in ``.verdicts``, and
        stay out of matrix and baseline. Raises a subclass of ``AssertionError`` for the first failing verdict,
        ``ValueError`` in one line for anything that names no Transfer; fails in one line for a second judged call in
        an item.
        """
        __tracebackhide__ = True
        if judge and self._judged:
            pytest.fail("this item was judged already: one judged transferbench(...) call an item", pytrace=False)
        try:
            case = self._case_of(transfer, floor_gbps, floor_source)
        except ValueError as error:
            # Raised anew so that the user's own line is the last one shown, not that of a parser.
            raise ValueError(str(error)) from None
        if isinstance(case, MessageCase) and data is not None:
            raise ValueError(f"data is given for {case.name}: a Message brings its own payload, leave data out")
        judge = judge and not case.control
        self._judged = self._judged or judge
        return self._conclude(case, self._measure(case, data), judge)

    def look_for_lost(self, name: str) -> None:
        """Look which GPUs still answer after the item called ``name`` failed: it is then named, not the next."""
        if self._run.opened:
            self._run.bench().find_lost_after(self.case.name if self.case else name)

    def adopt(self, transfer: object) -> None:
        """Take what the test's own ``parametrize`` gave as this item's, if it is something that can be measured."""
        if isinstance(transfer, AnyTransfer | str):
            self.case = self._case_of(transfer)

    def lease(self, stack: ExitStack) -> Lease:
        """Lease the buffers of this item's own case till ``stack`` ends; the same Transfer is then measured in them.

        No context manager of its own: pytest would show contextlib's frames where the buffers cannot be had.
        """
        __tracebackhide__ = True
        if self.case is None:
            pytest.fail("transfer_buffers needs the argument transfer, parametrized by transferbench", pytrace=False)
        if isinstance(self.case, MessageCase):
            pytest.fail("transfer_buffers has the buffers of Transfers; a Message brings its own", pytrace=False)
        if self.case.best:
            pytest.fail(
                "transfer_buffers are those of one number of SubExecutors; the best one is found in several: give a "
                "number, such as --transfer-subexecutors=8",
                pytrace=False,
            )
        from pytest_transferbench.runtime import RuntimeFault

        denied = None
        try:
            lease = stack.enter_context(self._run.bench().lease(self.case))
        except RuntimeFault as fault:
            denied = self._not_leased(self.case, fault)
        if denied is not None:
            self._conclude(self.case, denied, judge=True)
        self._lease = (self.case, lease)
        stack.callback(setattr, self, "_lease", None)
        return lease

    def _case_of(self, transfer: AnyTransfer | str, floor_gbps: float | None = None, floor_source: str = "") -> AnyCase:
        __tracebackhide__ = True  # a skip names the last line that is shown
        settings = self._request.settings
        if isinstance(transfer, str):
            nbytes = self.case.transfer.nbytes if self.case else None
            places = places_of(self._run.node, self._run.gpus)
            transfer = read_transfer(transfer, nbytes, settings.subexecutors, places)
        if not isinstance(transfer, AnyTransfer):
            raise ValueError(
                f"transferbench({transfer!r}): give a Transfer, a Test or its notation, such as '(G1->G0->G0 8 64M)', "
                "or a Message"
            )
        if self.case is not None and transfer == self.case.transfer:
            case = self.case
        else:
            case = case_of(transfer, self._request, self._run.node)
            reason = missing(transfer, self._run.node, self._run.gpus)
            reason = reason or session_run.unsupported(case, self._run.node)
            if reason is not None:
                pytest.skip(reason)
        if floor_gbps is None:
            return case
        if isinstance(case, MessageCase):
            return dataclasses.replace(case, floor_gbps=floor_gbps)
        return dataclasses.replace(case, floor_gbps=floor_gbps, floor_source=floor_source)

    def _measure(self, case: AnyCase, data: Any) -> Measurement:
        __tracebackhide__ = True
        from pytest_transferbench.runtime import RuntimeFault

        bench, key = self._run.bench(), self._key(case)
        if isinstance(case, Case) and self._lease is not None and self._lease[0].transfer == case.transfer:
            return bench.measure(self._lease[1], key=key, data=data)

        def leased(case: Case) -> Measurement:
            __tracebackhide__ = True
            with bench.lease(case) as lease:
                return bench.measure(lease, key=key, data=data)

        try:
            if isinstance(case, MessageCase):
                return session_run.measure_message(bench, case, key)
            return measure_best(case, self._run.node, leased) if case.best else leased(case)
        except RuntimeFault as fault:
            return self._not_leased(case, fault)

    def _not_leased(self, case: AnyCase, fault: RuntimeFault) -> Measurement:
        """What there is to say about a case whose buffers could not be had."""
        transfer, key = case.transfer, self._key(case)
        return Measurement(
            key=key,
            transfer=transfer,
            op=transfer.op,
            link_class=link_class_of(transfer, self._run.node),
            nbytes=transfer.nbytes,
            method={},
            digest="",
            faults=(Fault("DEVICE_ERROR", f"{key}: {fault}"),),
            emulated=self._run.node.emulated,
        )

    def _key(self, case: AnyCase) -> str:
        return f"{self._suite}/{case.name}"

    def _conclude(self, case: AnyCase, measurement: Measurement, judge: bool) -> Measurement:
        """Judge a measurement, keep it, and raise its failing verdict if it is to be raised."""
        __tracebackhide__ = True
        control = case.control and not judge  # buffers that cannot be had fail a control too
        measurement = self._judge(case, dataclasses.replace(measurement, judged=judge, control=control))
        self.measurements.append(measurement)
        failing = next((finding for finding in measurement.verdicts if finding.fails), None)
        if judge and failing is not None:
            from pytest_transferbench.judge import exception_for

            raise exception_for(failing, measurement)
        return measurement

    def _judge(self, case: AnyCase, measurement: Measurement) -> Measurement:
        """Return ``measurement`` with its verdicts, and with the ceiling it was held against."""
        from pytest_transferbench.judge import judge, limits_for

        limits = _limits(case)
        ceiling, source = self._run.ceiling(case.transfer)
        floor_source = case.floor_source if isinstance(case, Case) else ""
        findings = judge(
            measurement, ceiling=ceiling, limits=limits, floor_gbps=case.floor_gbps, floor_source=floor_source
        )
        self.limits = ItemLimits(limits_for(measurement, limits))
        known: dict[str, Any] = {"ceiling_gbps": ceiling.gbps if ceiling else None, "ceiling": source}
        if case.floor_gbps is not None:
            known |= {"floor_gbps": case.floor_gbps, "floor": floor_source}
        if self._request.table:
            known["table"] = self._request.table
        measurement = dataclasses.replace(measurement, verdicts=findings, context={**measurement.context, **known})
        if not any(finding.fails for finding in findings):
            self._run.ceilings.record(measurement)
        return measurement


def _limits(case: AnyCase) -> Limits:
    from pytest_transferbench.judge import Limits

    if isinstance(case, MessageCase) or case.warm_cold_limit is None:
        return Limits()
    return Limits(warm_cold=case.warm_cold_limit, warm_cold_unrotated=case.warm_cold_limit)
