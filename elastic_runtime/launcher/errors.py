"""What can go wrong around a job's processes; the roots and their exit codes stand in `elastic_runtime.errors`."""

from elastic_runtime.errors import BadInput, ElasticError


class NoSuchJob(BadInput):
    """The folder of jobs holds none of that name."""


class JobBusy(BadInput):
    """Another `elastic-run` looks after the job already."""


class RequestAborted(ElasticError):
    """The job refused what was asked, or gave it up; it goes on as before."""


class RequestPending(ElasticError):
    """What was asked is not done within the time that the caller gives it; it goes on."""


class JobFailed(ElasticError):
    """The job, or something that it cannot do without, ended with an error."""
