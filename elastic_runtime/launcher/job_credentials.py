"""How the job's launcher, and whoever asks a job on this machine, show themselves to its coordinator."""

from __future__ import annotations

from elastic_runtime.control.credentials import ClientCredentials, read_ca
from elastic_runtime.launcher.job_folder import JobFolder
from elastic_runtime.launcher.job_spec import JobSpec


def credentials_of(job: JobFolder, spec: JobSpec) -> ClientCredentials:
    """The job's token, and its certificate authority if it speaks TLS.

    Raises:
        BadInput: one of the files cannot be read.
    """
    ca_pem = None if spec.ca is None else read_ca(spec.ca)
    return ClientCredentials(job.token(), ca_pem, spec.insecure)
