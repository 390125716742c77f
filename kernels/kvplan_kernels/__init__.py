"""GPU kernels for KDA and MLA and the bench that measures them: torch, triton and numpy, never kvplan."""
