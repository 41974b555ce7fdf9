"""The sub-commands of `policy-net`, one file each; `train` lives with what it trains, in `learning.command`."""
