"""`python -m deploy.kube`."""

from deploy.kube.cli import main

if __name__ == "__main__":
    main()
