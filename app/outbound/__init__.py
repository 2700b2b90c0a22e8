"""HTTP out: to the payment service and to the shop, and nowhere that a request names."""
