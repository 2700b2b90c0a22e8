"""Opening a checkout session at the payment service, once and only once. See README.md."""
