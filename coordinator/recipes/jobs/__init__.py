"""The parts of a job: its schedule, its ledger, the steps of a run."""
