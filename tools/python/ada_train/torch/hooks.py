"""Hooks of a module that belong to the module itself: its copies and pickles have none of them."""


class _Hook:
    def __init__(self, function=None):
        self.function = function

    def __call__(self, *args, **kwargs):
        return None if self.function is None else self.function(*args, **kwargs)

    def __deepcopy__(self, _):
        return _Hook()

    def __reduce__(self):
        return _Hook, ()


def keep_to_the_module(handles):
    """`handles`: of hooks that were registered. A copy of their module would run them as the
    module's own, or could not be made where they hold files."""
    for handle in handles:
        hooks = handle.hooks_dict_ref() if hasattr(handle, "hooks_dict_ref") else None
        if hooks is not None and handle.id in hooks:
            hooks[handle.id] = _Hook(hooks[handle.id])


def forget(model):
    """Takes what copying has left of such hooks off a copied model."""
    for module in model.modules():
        for hooks in (module._forward_hooks, module._forward_pre_hooks,
                      module._state_dict_pre_hooks):
            for key in [key for key, hook in hooks.items()
                        if isinstance(hook, _Hook) and hook.function is None]:
                del hooks[key]
                for kind in (module._forward_hooks_with_kwargs, module._forward_hooks_always_called,
                             module._forward_pre_hooks_with_kwargs):
                    kind.pop(key, None)
