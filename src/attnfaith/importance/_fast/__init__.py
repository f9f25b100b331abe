"""Engines: shorter ways to what measures ask of an encoder, which use how that encoder is built.

One module per question: `deletion` (states of texts without a token, or with another), `norm_gradients` (how the length of
a state depends on each token), `sentences` (vectors of sentences without a
word). Each defines its question by calls of the encoder alone, which serves an encoder of any type, and has a table from
types to engines that give the same, to rounding, with less work.

The type of an encoder must be exactly the one in the table. A subclass may read texts otherwise, and then its parent's
engine would answer for a model that it is not; so it is asked by the definition, as is the same class loaded from the code
that travels with a checkpoint. An engine is no part of a model: nothing here is saved.

Shapes: B instances, T tokens, E embedding, H hidden, D units of one direction, V deleted positions.
"""
