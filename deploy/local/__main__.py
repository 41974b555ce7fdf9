"""Start of `python -m deploy.local`; what it does stands in `demo.py`."""

from foundation.program_life import begin

if __name__ == "__main__":
    begin("demo", "deploy.local.demo")
