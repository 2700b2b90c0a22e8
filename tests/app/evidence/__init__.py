"""Evidence: keys, signatures, bundles and what verifies them."""
