"""The stored transparency log: rows to be sealed, leaves, tree and heads."""

__all__ = (
    "departure_store",
    "leaf_store",
    "log_queue_store",
    "log_store",
    "order_store",
    "order_tree_store",
)
