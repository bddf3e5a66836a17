"""Host of a service's callbacks for its agent, protected from their failures."""
