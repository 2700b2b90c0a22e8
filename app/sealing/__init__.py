"""The stored transparency log: unsealed rows, leaves, tree and heads."""

__all__ = (
    "departure_store",
    "leaf_store",
    "log_queue_store",
    "log_store",
    "order_store",
    "order_tree_store",
)
