"""A payment needs 3 of 5 sites: with two dead it goes through, with three it fails in time.

The payer's bank and the payee's bank both book it, or none does (``CommitLog``). Without the lock
there is no charge: UnavailableError and LockTimeoutError mean "not begun", always. Where that is
not known the error is OutcomeUnknownError, and the log has the answer.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from coordinator.client import Client
from coordinator.errors import (
    CoordinatorError,
    LockTimeoutError,
    OutcomeUnknownError,
    UnavailableError,
)
from coordinator.recipes import CommitLog, CommitSite, Transaction
from coordinator.testing import LocalCluster, local_cluster
from examples.stage import Stage, perform

BANKS = ("payer", "payee")


class Bank:
    """Books what is committed, once for each key, and refuses a token below one it has seen."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.reserved: set[str] = set()
        self.booked: dict[str, int] = {}

    def prepare(self, payment: Transaction) -> bool:
        self.reserved.add(payment.key)
        return True

    def apply(self, payment: Transaction) -> None:
        self.reserved.discard(payment.key)
        if payment.is_committed and payment.key not in self.booked:
            assert payment.fencing_token >= max(self.booked.values(), default=0)
            self.booked[payment.key] = payment.fencing_token

    def serve(self, sites: LocalCluster, stop: threading.Event) -> None:
        with sites.connect(timeout=2) as client:
            site = CommitSite(client, "payments", self.name)
            while not stop.is_set():
                try:
                    site.attend(self.prepare, self.apply, timeout=0.2)
                except CoordinatorError:  # no quorum: what it has promised stays reserved
                    stop.wait(0.1)


def pay(client: Client, order: str) -> str:
    log = CommitLog(client, "payments", timeout=1)
    try:
        payment = log.run(order, BANKS, {"euro": 5})
        return "paid" if payment.is_committed else f"not paid: {payment.reason}"
    except (LockTimeoutError, UnavailableError) as error:
        return f"not paid, try later ({type(error).__name__})"
    except OutcomeUnknownError:
        return f"not known yet; look({order!r}) will say"


def story(stage: Stage) -> None:
    banks, stop = [Bank(name) for name in BANKS], threading.Event()
    with local_cluster(members=5) as sites, ThreadPoolExecutor(len(banks)) as threads:
        for bank in banks:
            threads.submit(bank.serve, sites, stop)
        try:
            with sites.connect(timeout=2) as client:
                stage.say(f"Five sites: {pay(client, 'A')}")
                sites.kill("1")
                sites.kill("2")
                _ = sites.leader  # wait until the three have elected one
                stage.say(f"Two sites dead, three left: {pay(client, 'B')}")
                ends = time.monotonic() + 10
                while any("B" not in bank.booked for bank in banks) and time.monotonic() < ends:
                    time.sleep(0.05)
                sites.kill("3")
                stage.say(f"Three sites dead, two left: {pay(client, 'C').partition(' (')[0]}")
        finally:
            stop.set()
    for bank in banks:
        stage.say(f"Charged: {', '.join(bank.booked)}. That is what the {bank.name}'s bank has.")
    stage.say("No endless wait, and no charge at one bank alone.")


if __name__ == "__main__":
    perform(story)
