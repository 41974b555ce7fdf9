"""The console scripts: Ctrl-C has an answer in their first line of ours, before anything is looked for on a disk.

Nothing but console scripts imports this module: whoever does is answered for, as the program that it is.
"""

# Even `from __future__` is looked for on a disk; `os`, `sys` and `_signal` are there in every interpreter.
import _signal  # type: ignore[import-not-found]  # what `signal` is made of
import os
import sys


def _interrupted(number: int, frame: object) -> None:
    del number, frame
    os.write(2, f"{os.path.basename(sys.argv[0])}: interrupted\n".encode())  # noqa: PTH119  (pathlib takes time)
    os._exit(130)  # `foundation.errors.INTERRUPTED`, which is not there yet


# Whoever starts a program in the background may have it ignore Ctrl-C.
if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _interrupted)


def _begin(program: str, module: str) -> None:
    from foundation.program_life import begin  # noqa: PLC0415

    begin(program, module, _interrupted)


def _alone_in_blas() -> None:
    """Have NumPy's BLAS start no thread for each core when it is loaded: they would spin, for 0.07 s, on nothing.

    For programs that start no user's script, which would inherit it. Matrices are small; torch's threads are its own.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def policy_net() -> None:
    """The console script `policy-net`."""
    _alone_in_blas()
    _begin("policy-net", "policy_net.cli")


def cluster_agent() -> None:
    """The console script `cluster-agent`."""
    _begin("cluster-agent", "cluster_agent.cli")


def global_learner() -> None:
    """The console script `global-learner`."""
    _alone_in_blas()
    _begin("global-learner", "global_learner.cli")


def elastic_run() -> None:
    """The console script `elastic-run`."""
    _begin("elastic-run", "elastic_runtime.cli")


def policyctl() -> None:
    """The console script `policyctl`."""
    _begin("policyctl", "global_learner.policyctl.cli")
