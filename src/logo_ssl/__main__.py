"""`python -m logo_ssl` is `logo-ssl`."""

from .cli import main

main()
