"""Commands of `policy-net`, one file each; `inspect`, which needs no simulation, is in `policy_net.cli`."""
