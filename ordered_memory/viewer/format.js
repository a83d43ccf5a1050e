// The format of traces, as ordered_memory/trace_format.py documents it. Only types: nothing here runs.

/**
 * A constituent: `Node` in trace_format.py.
 * @typedef {object} Constituent
 * @property {number} first
 * @property {number} last
 * @property {number[]} children
 * @property {number} [step]
 * @property {number} [slot]
 * @property {boolean | null} [in_true_tree]
 * @property {number} [value]
 * @property {number} [model_value]
 */

/**
 * @typedef {object} Step
 * @property {number | null} token
 * @property {number | null} slot
 * @property {number[]} joined
 * @property {[number, number][]} stack
 */

/**
 * @typedef {object} Memory
 * @property {number} num_slots
 * @property {number[][]} attention
 * @property {number[][]} forward_mask
 * @property {number[][]} backward_mask
 * @property {number[][]} occupancy
 * @property {Step[]} steps
 */

/**
 * @typedef {object} Layer
 * @property {string} name
 * @property {number[]} distances
 * @property {Record<string, Constituent[]>} trees
 */

/**
 * @typedef {object} LayerTree
 * @property {string} layer
 * @property {string} decoding
 */

/**
 * @typedef {object} Answer
 * @property {string[]} classes
 * @property {number[]} probabilities
 * @property {number | null} true
 */

/**
 * @typedef {object} Trace
 * @property {string[]} tokens
 * @property {string} caption
 * @property {"forward" | "backward"} direction
 * @property {number[]} words
 * @property {number} [example]
 * @property {Constituent[]} [nodes]
 * @property {Constituent[]} [true_nodes]
 * @property {Memory} [memory]
 * @property {Layer[]} [layers]
 * @property {LayerTree} [default_tree]
 * @property {Answer} [answer]
 * @property {number[]} [token_values]
 * @property {number[]} [true_token_values]
 */
