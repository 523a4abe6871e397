"""`python -m minibert` and `accelerate launch -m minibert` are the same program."""

from minibert.cli import main

if __name__ == "__main__":
    main()
