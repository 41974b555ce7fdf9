"""`python -m deploy.train`."""

from deploy.train.cli import main

if __name__ == "__main__":
    main()
