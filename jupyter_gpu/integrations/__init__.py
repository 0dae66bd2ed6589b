"""How frameworks' trainings yield and resume: one module each, imported by name, and nothing of them before that.

    from jupyter_gpu.integrations.torch import Resumable          # a loop of your own
    from jupyter_gpu.integrations.lightning import Resumable      # a callback
    from jupyter_gpu.integrations.transformers import Resumable   # a callback
    from jupyter_gpu.integrations.keras import Resumable          # a callback

All are made of `jupyter_gpu.training` alone; what it promises holds here too.
"""
