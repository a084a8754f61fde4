"""Search expressions: grammar, evaluation, and a prefilter that excludes most messages quickly."""
