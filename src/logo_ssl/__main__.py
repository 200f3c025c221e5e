"""`python -m logo_ssl` is `logo-ssl`."""

from .entry import main

main()
