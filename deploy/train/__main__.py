"""`python -m deploy.train`."""

from deploy.train.demo import main

if __name__ == "__main__":
    main()
