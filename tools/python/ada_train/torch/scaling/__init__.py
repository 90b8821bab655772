"""How a scale travels with the gradients of a PyTorch network: the graph of one backward pass with
the scale of each of its edges (plan), where layers choose one (rules, products, nodes), and where
gradients of several consumers meet (merging)."""
