"""Problems, tables and look-ups of vLLM's and SGLang's Triton kernels, answered by what triton_ops has tuned."""
