"""`python -m deploy.kube`."""

from deploy.kube.demo import main

if __name__ == "__main__":
    main()
