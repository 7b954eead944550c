"""Parts of a model as models of their own, and models of which a part is another model's."""
