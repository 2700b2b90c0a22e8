"""Tables from files: order books and statements, as merchants and providers write them."""
